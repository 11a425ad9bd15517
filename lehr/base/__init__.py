"""What every layer shares: dtypes, devices, symbolic integers, pytrees, options, logging."""
