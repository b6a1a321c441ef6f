"""Where inputs come from: named sets, arrays, tables and folders of images; and the data that needs no download."""
