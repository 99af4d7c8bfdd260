"""Commands that set up this machine: `completion`, `profile` and `doctor`."""
