"""Every operator, declared once. `registry` holds the declarations; family modules fill it."""
