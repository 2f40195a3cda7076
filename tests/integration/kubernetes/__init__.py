"""Ray's own autoscaler for KubeRay at work, without a cluster.

Real are Ray (its autoscaler as KubeRay starts it, raylets, Serve), the application and the manifest. Stand-ins are the
Kubernetes API server (`api_server`), KubeRay's operator (`objects`, `reconciler`) and the kubelet (`kubelet`): a pod is
a raylet on this machine.
"""
