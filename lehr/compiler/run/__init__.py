"""What runs generated code: compiler, cache, libraries, threads, memory, tuning."""
