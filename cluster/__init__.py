"""The control plane on Ray Serve: configuration, gateway, deployments, command line."""
