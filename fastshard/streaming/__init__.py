"""Streams: datasets that are read in long runs, and split over ranks and their workers exactly."""
