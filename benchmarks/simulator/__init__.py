"""A cluster in numbers: thousands of simulated replicas under the real routing and autoscaling policies."""
