"""The data plane: engines that draft and verify. Knows nothing of Ray Serve."""
