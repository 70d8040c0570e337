package compiler

import (
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/snapshots"
)

// withText adds Ingresses of the namespace evil, the oldest first, whose backends have twice so many lines of text.
func withText(in *inputs.Inputs, n, lines int, text func() string) {
	class, prefix := "hapsnap", networkingv1.PathTypePrefix
	web := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	for i := range n {
		headers := func() string {
			var out []string
			for l := range lines {
				out = append(out, fmt.Sprintf("set X-%d %s", l, text()))
			}
			return strings.Join(out, "\n")
		}
		name := fmt.Sprintf("i%04d", i)
		ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{
			Namespace: "evil", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(2_000_000_000+int64(i), 0)),
			Annotations: map[string]string{"hapsnap.dev/request-headers": headers(), "hapsnap.dev/response-headers": headers()},
		}}
		ing.Spec.IngressClassName = &class
		ing.Spec.Rules = []networkingv1.IngressRule{{Host: name + ".evil.example", IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: web}}},
		}}}
		in.Ingresses = append(in.Ingresses, inputs.Object[networkingv1.Ingress]{Ref: diag.Object{Kind: "Ingress", Namespace: "evil", Name: name}, Value: ing})
	}
}

// A namespace whose lines would make a snapshot larger than a store or an instance takes loses its youngest objects, and
// everything else is published.
func TestLinesOfANamespaceFitIntoTheSnapshot(t *testing.T) {
	t.Parallel()
	same := strings.Repeat("a", 960)
	r := rand.New(rand.NewPCG(1, 1))
	random := func() string {
		b := make([]byte, 720)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	for name, test := range map[string]struct {
		objects, lines int
		text           func() string
		most           int // limits.snapshotBytes
		reason         string
		size           func([]snapshots.File) (is, mayBe int)
	}{
		"haproxy.cfg": {
			objects: 3600, lines: 8, text: func() string { return same }, most: 0, reason: "bytes in haproxy.cfg, and there is room for",
			size: func(files []snapshots.File) (int, int) { return sizeOfFile(files, snapshots.ConfigFile), roomForConfig },
		},
		"all files": {
			objects: 100, lines: 8, text: func() string { return same }, most: 1 << 20, reason: "bytes in the files of the snapshot",
			size: func(files []snapshots.File) (int, int) { return sizeOfFile(files, ""), 1 << 20 },
		},
		"compressed": {
			objects: 2400, lines: 8, text: random, most: 60 << 20, reason: "bytes in the compressed snapshot",
			size: func(files []snapshots.File) (int, int) {
				return compressedSize(func(w io.Writer) {
					for _, f := range files {
						_, _ = w.Write(f.Content)
					}
				}), roomCompressed
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := worlds.Ingresses(10)
			withText(&in, test.objects, test.lines, test.text)
			result, _ := published(t, in, func(c *config.Config) {
				c.Limits.NamespaceOptionBytes, c.Limits.SnapshotBytes = 0, test.most
			})
			if is, mayBe := test.size(result.Draft.Files); is > mayBe || is < mayBe/2 {
				t.Errorf("the files have %d bytes, and may have %d", is, mayBe)
			}
			if len(result.Draft.Quarantined) == 0 {
				t.Fatal("nothing is left out")
			}
			var left []string
			for _, q := range result.Diagnostics {
				if q.Severity != diag.Error {
					continue
				}
				if left = append(left, q.Object.Name); q.Object.Namespace != "evil" || !strings.Contains(q.Message, test.reason) {
					t.Fatalf("left out is %s: %s", q.Object, q.Message)
				}
			}
			slices.Sort(left)
			youngest := fmt.Sprintf("i%04d", test.objects-len(left))
			if len(left) == test.objects || left[0] != youngest {
				t.Errorf("%d are left out, from %s, and %s is the oldest that should be", len(left), left[0], youngest)
			}
		})
	}
}

// sizeOfFile returns how many bytes a file has, or all files have.
func sizeOfFile(files []snapshots.File, path string) (n int) {
	for _, f := range files {
		if path == "" || f.Path == path {
			n += len(f.Content)
		}
	}
	return n
}
