// Package podtest is a kubelet and the controllers of workloads for tests, without
// containers. Pods that Deployments, DaemonSets and StatefulSets of an API server make are
// run: each in a network namespace of its own, each container in a root that is its image's,
// in namespaces of processes and mounts, as the user that the pod says, with its volumes,
// its ServiceAccount's token, its probes, and the kubelet's order of starts and ends.
//
// Everything goes through the API server: pods are created there, so that defaults and Pod
// Security apply, and containers reach it with their own tokens, through a proxy on their
// loopback address. EndpointSlices of Services follow from pods.
//
// It needs root, and iproute2.
//
// # What is left out
//
// Limits of CPU and memory, seccomp, hooks other than sleep and httpGet, probes other than
// httpGet and tcpSocket, volumes other than emptyDir, configMap and secret, several nodes,
// ports of nodes for UDP, externalTrafficPolicy, and NetworkPolicies. Volumes of a changed
// ConfigMap or Secret are brought up to date within seconds, where a kubelet may take more than
// a minute. A pod whose port of the node another pod has waits for it, as for a scheduler.
package podtest
