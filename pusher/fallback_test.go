package pusher

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

func TestFallbackCertificateIsMadeOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fallback.pem")
	take := func(year int) ([]byte, error) {
		state := statestore.NewFile(filepath.Join(filepath.Dir(file), "state.json"))
		defer state.Release()
		taken, err := state.Take(t.Context(), newFallback(noon.AddDate(year, 0, 0)))
		return taken.Fallback, err
	}
	first, err := take(0)
	if err != nil {
		t.Fatal(err)
	}
	observed, err := pem.CheckKeyPair(first)
	if err != nil || !slices.Equal(observed.Names, []string{"hapsnap fallback certificate"}) || observed.NotAfter.Year() != 2036 {
		t.Errorf("it is %+v: %v", observed, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its file is %v: %v", info.Mode(), err)
	}
	second, err := take(1)
	if err != nil || string(first) != string(second) {
		t.Errorf("it was made twice: %v", err)
	}
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := take(0); err == nil {
		t.Error("a broken file is no error")
	}
}
