"""`barnabas pipeline …`: commands for pipelines as files (src/barnabas/pipelines)."""
