package compiler

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
)

// The files beside the rendered ones are checked too, and so is the text of the manifest.
func TestDraftIsChecked(t *testing.T) {
	t.Parallel()
	const value = "t3st-0nly-Zx81q"
	in := Input{Objects: inputs.Inputs{Secrets: []inputs.Object[corev1.Secret]{{Value: &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Data: map[string][]byte{"password": []byte(value)},
	}}}}}
	for name, test := range map[string]struct{ content, want string }{
		"value":   {"x: " + value + "\n", ""}, // of an EndpointSlice, which a tenant may write
		"key":     {"-----BEGIN PRIVATE KEY-----\n", "endpoints.yaml would hold a private key"},
		"neither": {"x: y\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &compilation{private: privateOf(in)}
			r := Result{Draft: snapshots.Draft{
				Files:      []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(value)}, {Path: snapshots.EndpointsFile, Content: []byte(test.content)}},
				Provenance: snapshots.Provenance{Trigger: "change of " + value},
			}}
			r.Artifact.Origins = map[string][]*render.LineOrigin{snapshots.ConfigFile: nil} // it was checked before
			err := c.checkDraft(&r)
			if test.want == "" {
				if err != nil || r.Draft.Provenance.Trigger != "change of (hidden)" {
					t.Errorf("%v, %+v", err, r.Draft)
				}
				return
			}
			if !errors.Is(err, ErrTemplates) || len(r.Draft.Files) > 0 || len(r.Diagnostics) != 1 || !strings.HasPrefix(r.Diagnostics[0].Message, test.want) {
				t.Errorf("%v, %+v", err, r)
			}
		})
	}
}
