// Package kubetest runs a real API server for tests: the stock kube-apiserver and
// etcd, started by envtest, without containers. It promises that what a test
// starts ends with it, whichever way it ends, and leaves the cluster's controllers
// out: nothing fills EndpointSlices, makes the ServiceAccount "default" or finishes
// deleting a namespace.
//
// The programs are built by `make test` into build/kube, or by `make kube` alone;
// KUBEBUILDER_ASSETS names another folder. A test fails where they are missing.
// Binary finds them, and kubectl and kustomize.
//
// An API server takes about three seconds to start, so the tests of a package
// share one, each in a namespace of its own. Only what breaks it has its own
// (Start).
//
//	var cluster kubetest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &cluster)) }
//
//	func TestWatch(t *testing.T) {
//		t.Parallel()
//		server := cluster.Server(t)
//		namespace := server.Namespace(t)
//		server.Apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: `+namespace+`}}`)
//		…
//	}
//
// # Rights
//
// The API server learns of roles and bindings by a watch of its own. What writes some
// therefore waits until they hold: Grant, Apply and Delete do, and after something else
// wrote some, such as kubectl, AwaitRights does.
//
// # Addresses of pods
//
// The API server refuses 127.0.0.0/8 and ::1 in EndpointSlices. Main runs the tests
// in a network namespace of their own, in which every address of PodRange and
// PodRange6 is the machine's: servers can listen on 10.244.3.7, and HAProxy reaches
// them there. InNamespace does that alone. It needs root, or a kernel that lets
// users make namespaces.
//
// # Faults
//
// Stop and Resume end the API server and start it again, on the same port and with
// everything that was in it. Expire does so such that watches cannot go on from
// where they were: they end with 410, "too old resource version".
package kubetest
