// Package fleet reads the file that lists the instances of a fleet and says how
// snapshots are rolled out over it:
//
//	apiVersion: hapsnap.dev/v1alpha1
//	kind: Fleet
//	metadata:
//	  name: edge
//	spec:
//	  rollout:
//	    waves: ["1", "25%", "100%"]
//	    soak: 30s
//	  instances:
//	  - name: edge-1
//	    url: https://10.0.0.11:5555
//	    username: hapsnap
//	    passwordFile: edge-1.password
//	    zone: a
//
// or which pods of a cluster they are ([Pods]). It is strict: what it does not know is an error with its place in the file, for
// it may be what the writer cared about most.
package fleet
