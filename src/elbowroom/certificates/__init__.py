"""What was found and proved, as data and as files. Knows neither how it was searched for nor the runs that make it."""
