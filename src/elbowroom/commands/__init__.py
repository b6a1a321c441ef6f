"""The command line: one file per command, which reads its flags, calls, and hands what came back to `report`."""
