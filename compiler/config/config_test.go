package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const head = "apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\n"

func TestDefaultIsValid(t *testing.T) {
	t.Parallel()
	if Errors := Default().Check(); len(Errors) > 0 {
		t.Error(Errors)
	}
}

func TestParseKeepsDefaults(t *testing.T) {
	t.Parallel()
	got, ds := Parse("c.yaml", []byte(head+`metadata: {name: edge}
spec:
  http: {port: 8080}
  bind:
    addresses: ["${POD_IP}", "::1"]
  timeouts:
    connect: 300ms
`))
	want := Default()
	want.HTTP.Port = 8080
	want.Bind.Addresses = []string{"${POD_IP}", "::1"}
	want.Timeouts.Connect = "300ms"
	if diff := cmp.Diff(want, got); diff != "" || len(ds) > 0 {
		t.Errorf("%v\n%s", ds, diff)
	}
}

func TestParseReportsPosition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {"", "c.yaml: is not a CompilerConfig\n\thint: begin with apiVersion: hapsnap.dev/v1alpha1 and kind: CompilerConfig"},
		"another kind":   {"kind: ConfigMap\n", "c.yaml:1:1: is \"ConfigMap\" of \"\", not a CompilerConfig\n\thint: begin with apiVersion: hapsnap.dev/v1alpha1 and kind: CompilerConfig"},
		"not YAML":       {"a: [\n", "c.yaml:1: not YAML: did not find expected node content"},
		"unknown field":  {head + "spec:\n  http: {prot: 80}\n", "c.yaml:4:10: spec.http.prot: unknown field\n\thint: use one of port"},
		"set twice":      {head + "spec:\n  http: {port: 80}\n  http: {port: 81}\n", "c.yaml:5:3: spec.http: is set twice"},
		"wrong type":     {head + "spec:\n  http:\n    port: eighty\n", "c.yaml:5:11: spec.http.port: want a number, not \"eighty\""},
		"null":           {head + "spec:\n  maxconn:\n", "c.yaml:4:11: spec.maxconn: want a number, not nothing"},
		"no fields":      {head + "spec:\n  http: 80\n", "c.yaml:4:9: spec.http: want fields, not \"80\""},
		"port":           {head + "spec:\n  http: {port: 70000}\n", "c.yaml:4:16: spec.http.port: 70000 is not a port\n\thint: use 1 to 65535, or 0 for no such listener"},
		"port twice":     {head + "spec:\n  status: {port: 443}\n", "c.yaml:4:18: spec.status.port: is the port of another listener\n\thint: give each listener a port of its own"},
		"default's port": {head + "spec:\n  http: {port: 443}\n", "c.yaml:4:3: spec.https.port: is the port of another listener\n\thint: give each listener a port of its own"},
		"duration":       {head + "spec:\n  timeouts: {client: 1m30s}\n", "c.yaml:4:22: spec.timeouts.client: \"1m30s\" is not a time\n\thint: use a number and a unit: us, ms, s, m, h or d, such as 30s"},
		"address":        {head + "spec:\n  bind:\n    addresses: ['x y']\n", "c.yaml:5:17: spec.bind.addresses[0]: \"x y\" is not an address\n\thint: use IP addresses, \"*\", or one \"${VARIABLE}\""},
		"no address":     {head + "spec:\n  bind:\n    addresses: []\n", "c.yaml:5:16: spec.bind.addresses: is empty: nothing would be served\n\thint: use IP addresses, \"*\", or one \"${VARIABLE}\""},
		"shared list":    {head + "spec:\n  shared: {networkLists: [geo]}\n", "c.yaml:4:27: spec.shared.networkLists[0]: \"geo\" is not namespace/name\n\thint: use the namespace and the name of a ConfigMap, such as edge/countries"},
		"key's Secret":   {head + "spec:\n  affinity: {keySecret: shop}\n", "c.yaml:4:25: spec.affinity.keySecret: \"shop\" is not namespace/name\n\thint: use the namespace and the name of a Secret, or leave it out"},
		"Secret's key":   {head + "spec:\n  affinity: {keySecret: a/b, key: 'x y'}\n", "c.yaml:4:35: spec.affinity.key: \"x y\" is not a key of a Secret\n\thint: use letters, digits, -, _ and ."},
		"approved":       {head + "spec:\n  shrinkGuard: {approve: r12}\n", "c.yaml:4:26: spec.shrinkGuard.approve: \"r12\" is not a digest\n\thint: use the one that compiler status names, such as 9f3ac01b2d"},
		"share lost":     {head + "spec:\n  shrinkGuard: {lostPercent: 101}\n", "c.yaml:4:30: spec.shrinkGuard.lostPercent: 101 is not a percentage\n\thint: use 1 to 100, or 0 for no guard"},
		"failure policy": {head + "spec:\n  admission: {failurePolicy: open}\n", "c.yaml:4:30: spec.admission.failurePolicy: \"open\" is neither Ignore nor Fail\n\thint: use Ignore or Fail"},
		"least lost":     {head + "spec:\n  shrinkGuard: {minLost: 0}\n", "c.yaml:4:26: spec.shrinkGuard.minLost: 0 is not a number of backends\n\thint: use 1 or more"},
		"two documents":  {head + "---\n" + head, "c.yaml:3:1: holds more than one document\n\thint: keep one CompilerConfig to a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ds := Parse("c.yaml", []byte(c.text))
			if len(ds) != 1 {
				t.Fatalf("got %v, want one diagnostic", ds)
			}
			if diff := cmp.Diff(c.want, ds[0].String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadOfMissingFileIsAnError(t *testing.T) {
	t.Parallel()
	if _, _, _, err := Read(filepath.Join(t.TempDir(), "none.yaml")); !os.IsNotExist(unwrap(err)) {
		t.Errorf("got %v, want that the file does not exist", err)
	}
}

func unwrap(err error) error {
	if w, ok := err.(interface{ Unwrap() error }); ok {
		return w.Unwrap()
	}
	return err
}
