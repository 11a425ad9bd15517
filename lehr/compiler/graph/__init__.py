"""Graph IR: immutable SSA over logical tensors, its text, verifier and reference interpreter."""
