"""The whole story on embedded data: two small networks, trained on the spot, and the room each leaves its pixels."""
