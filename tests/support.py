import os

FULL = os.environ.get("ELBOWROOM_CASES") == "full"
