"""The deployments of the Serve application."""
