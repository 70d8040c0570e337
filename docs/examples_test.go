package docs_test

import (
	"os"
	"strings"
	"testing"
)

// The pages show the ready files unchanged.
func TestReadyFilesAreShown(t *testing.T) {
	t.Parallel()
	for file, page := range map[string]string{
		"argo-cd/application.yaml": "argo-cd.md", "argo-cd/argocd-cm.yaml": "argo-cd.md", "flux/snapshots.yaml": "flux.md",
	} {
		text, err := os.ReadFile("../examples/" + file)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := os.ReadFile("how-to/" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(shown), "```yaml\n"+string(text)+"```\n") {
			t.Errorf("docs/how-to/%s does not show examples/%s", page, file)
		}
	}
}
