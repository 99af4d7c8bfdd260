"""`barnabas acls`: which principal may do what on which resource."""
