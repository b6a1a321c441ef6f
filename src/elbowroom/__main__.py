"""`python -m elbowroom` is the command `elbowroom`."""

from elbowroom.commands.app import main

main()
