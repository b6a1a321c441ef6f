"""The command line: one file per command, which reads its flags, calls, and hands what came back to `report`.

A command is a function: typer makes flags of its parameters, and what it returns is the exit status (None is 0). All
else is imported inside these functions, since torch takes seconds and help must not.
"""
