"""What makes each data set, tiny model and preference set that the project uses."""
