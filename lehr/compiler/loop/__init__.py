"""Loop IR: kernels over axes, lowering from graphs, fusion, schedules, memory plan, interpreter."""
