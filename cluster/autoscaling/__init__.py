"""The autoscaling decision: a pure function of a snapshot, and a model of a cluster to try it on."""
