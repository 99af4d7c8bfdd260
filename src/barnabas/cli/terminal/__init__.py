"""The terminal side of every command: output, prompts, progress, signals, and failures with their exit codes."""
