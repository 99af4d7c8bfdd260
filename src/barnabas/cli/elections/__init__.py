"""`barnabas elect-leaders`. plan.py predicts the elections, elect_leaders.py runs them."""
