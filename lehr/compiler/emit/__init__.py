"""Back ends: a program of the loop IR becomes C or Triton source and a record of the call."""
