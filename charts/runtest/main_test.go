package runtest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/charts/charttest"
	"github.com/hapsnap/hapsnap/internal/testing/imagetest"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/internal/testing/podtest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) {
	podtest.Shim()
	dir, err := os.MkdirTemp("", "hapsnap-images-")
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // users of images need to enter it
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	images.dir = dir
	code := kubetest.Main(m, &cluster)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// images are the images of the Dockerfile, which tests share.
var images struct {
	dir   string
	mu    sync.Mutex
	built map[string]imagetest.Image
}

func image(t *testing.T, target string) imagetest.Image {
	t.Helper()
	images.mu.Lock()
	defer images.mu.Unlock()
	if i, ok := images.built[target]; ok {
		return i
	}
	if images.built == nil {
		images.built = map[string]imagetest.Image{}
	}
	images.built[target] = imagetest.New(t, charttest.Root(t), images.dir).Build(t, target)
	return images.built[target]
}
