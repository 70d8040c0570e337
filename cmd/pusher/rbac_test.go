package main

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
)

func TestRBAC(t *testing.T) {
	t.Parallel()
	const want = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  labels:
    app.kubernetes.io/component: pusher
    app.kubernetes.io/name: hapsnap
  name: hapsnap-pusher
  namespace: edge
rules:
- apiGroups:
  - ""
  resources:
  - configmaps
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - ""
  resourceNames:
  - edge
  resources:
  - namespaces
  verbs:
  - get
- apiGroups:
  - ""
  resources:
  - configmaps
  verbs:
  - create
- apiGroups:
  - ""
  resourceNames:
  - shop-channel
  resources:
  - configmaps
  verbs:
  - update
- apiGroups:
  - ""
  resourceNames:
  - shop-status
  resources:
  - configmaps
  verbs:
  - patch
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  labels:
    app.kubernetes.io/component: pusher
    app.kubernetes.io/name: hapsnap
  name: hapsnap-pusher
  namespace: edge
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: hapsnap-pusher
subjects:
- kind: ServiceAccount
  name: pusher
  namespace: edge
`
	if code, out, errs := pusherCommand(t, "rbac", "--store", "configmap:edge/shop", "--service-account", "edge/pusher"); code != process.ExitOK || out != want {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
	for said, args := range map[string][]string{
		"is not configmap:NAMESPACE/NAME": {"--store", "dir:store"},
		"--service-account: ":             {"--store", "configmap:edge/shop", "--service-account", "pusher"},
	} {
		if code, _, errs := pusherCommand(t, append([]string{"rbac"}, args...)...); code != process.ExitUsage || !strings.Contains(errs, said) {
			t.Errorf("%v: exit code %d, said %s", args, code, errs)
		}
	}
}
