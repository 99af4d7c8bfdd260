"""`barnabas tokens`: delegation tokens."""
