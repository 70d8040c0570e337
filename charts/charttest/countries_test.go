package charttest

import (
	"bytes"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// A volume with networks by country is mounted at the path in the configuration, unless the values have another
// path.
func TestCountriesVolume(t *testing.T) {
	t.Parallel()
	const volume = "compiler.countriesVolume.configMap.name=countries"
	for name, c := range map[string]struct {
		set     string
		files   []string
		mounted bool
	}{
		"none":             {"compiler.config.countries.header=X-Country", nil, false},
		"a volume":         {volume + ",compiler.config.countries.header=X-Country", []string{"/etc/hapsnap/countries"}, true},
		"one of its files": {volume + ",compiler.config.countries.files={/etc/hapsnap/countries/four.txt}", []string{"/etc/hapsnap/countries/four.txt"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := Template(t, "helm", "web", "--values", "../hapsnap/ci/minimal-values.yaml", "--set", c.set)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Spec struct{ Countries config.Countries }
			}
			for _, o := range Objects(t, text) {
				data, _ := o.Object["data"].(map[string]any)
				for _, file := range data {
					if document, ok := file.(string); ok && bytes.Contains([]byte(document), []byte("kind: CompilerConfig")) {
						if err := yaml.Unmarshal([]byte(document), &got); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			pod, _ := podOf(Find(t, Objects(t, text), "Deployment", Release+"-hapsnap-compiler"))
			mounted := false
			for _, m := range specOf(t, pod).Containers[0].VolumeMounts {
				mounted = mounted || m.Name == "countries" && m.MountPath == "/etc/hapsnap/countries" && m.ReadOnly
			}
			if !slices.Equal(got.Spec.Countries.Files, c.files) || mounted != c.mounted {
				t.Errorf("files %q, mounted %t; want %q, %t", got.Spec.Countries.Files, mounted, c.files, c.mounted)
			}
		})
	}
}
