"""The small shared library of the alignment recipes. Import its rooms: `from recipe_lib import datasets`."""
