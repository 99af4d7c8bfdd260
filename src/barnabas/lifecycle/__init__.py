"""The life of topics, told from the history of state changes: how it is found out, and the page that shows it."""
