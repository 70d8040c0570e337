package pusher

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

func TestFallbackCertificateIsMadeOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fallback.pem")
	first, err := fallbackCertificate(file, newFallback(noon))
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
	second, err := fallbackCertificate(file, newFallback(noon.AddDate(1, 0, 0)))
	if err != nil || string(first) != string(second) {
		t.Errorf("it was made twice: %v", err)
	}
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fallbackCertificate(file, newFallback(noon)); err == nil {
		t.Error("a broken file is no error")
	}
}
