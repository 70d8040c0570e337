package snapshots

import (
	"flag"
	"reflect"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/schemas"
)

var updateSchema = flag.Bool("update", false, "rewrite the schema")

const schemaFile = "../schemas/snapshot.json"

func TestSchemaIsFresh(t *testing.T) { // not in parallel: with -update it writes what the other tests read
	schemas.Published(t, schemas.Maker{}.File(APIVersion, ManifestKind, "The manifest of a snapshot: docs/reference/stores.md", reflect.TypeFor[Manifest]()), schemaFile, *updateSchema)
}

// The schema accepts what is published, and refuses what a reader would call corrupt.
func TestSchemaTakesManifests(t *testing.T) {
	t.Parallel()
	draft := Draft{
		Files: []File{{Path: ConfigFile, Content: []byte("global\n")}}, Time: time.Now(), Subject: "first",
		Certificates: []CertificateRef{{File: "certs/a.pem", Secret: SecretName{"shop", "web"}, Observed: &ObservedCertificate{Fingerprint: "ab", NotAfter: time.Now()}}},
		Quarantined:  []Quarantined{{Kind: "Ingress", Namespace: "shop", Name: "web", Reason: "a path"}},
	}
	text, err := draft.Number(2, ID{Revision: 1}).Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	schemas.Validated(t, schemaFile, text,
		"apiVersion: hapsnap.dev/v1\nkind: Snapshot\nmetadata: {name: r1}\nspec: {}", "apiVersion: hapsnap.dev/v1alpha1\nkind: Snapshot\nmetadata: {name: r1}",
		string(text)+"\nmore: 1\n", "apiVersion: hapsnap.dev/v1alpha1\nkind: Snapshot\nspec: {revision: one}",
	)
}
