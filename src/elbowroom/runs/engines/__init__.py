"""Where the parts of a run are computed: in this process, in processes of this machine, on a Ray cluster."""
