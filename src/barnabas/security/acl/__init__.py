"""ACLs: which principal may do what on which resource, from which host."""
