package charttest

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	hapsnap "github.com/hapsnap/hapsnap/hapsnap/cli"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
)

// Each program accepts the flags and values with which it is started.
func TestFlagsExist(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for _, o := range v.objects(t) {
				pod, ok := podOf(o)
				component := o.GetLabels()["app.kubernetes.io/component"]
				if !ok || component == "haproxy" {
					continue
				}
				program := pusher.NewCommand()
				switch component {
				case "compiler":
					program = compiler.NewCommand()
				case "provisioner":
					program = hapsnap.NewCommand(hapsnap.Name)
				}
				for _, c := range specOf(t, pod).Containers {
					verb, flags, err := program.Find(c.Args)
					if err == nil {
						err = verb.ParseFlags(flags)
					}
					if err != nil {
						t.Errorf("%s %v: %v", component, c.Args, err)
					}
					checkFiles(t, verb, c)
				}
			}
		})
	}
}

// checkFiles fails for a flag with a file in a folder that is not mounted.
func checkFiles(t *testing.T, verb *cobra.Command, c corev1.Container) {
	t.Helper()
	for _, arg := range c.Args {
		_, value, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(value, "/") {
			continue
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return value == m.MountPath || strings.HasPrefix(value, m.MountPath+"/")
		}) {
			t.Errorf("%s %s: nothing is mounted there", verb.Name(), arg)
		}
	}
}

// The programs can read the CompilerConfig and the Fleet. The chart's roles equal those that the programs print
// for them.
func TestRolesAreThoseOfThePrograms(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			objects := v.objects(t)
			if o, ok := v.component(t, "Deployment", "compiler"); ok {
				args := specOf(t, o).Containers[0].Args
				said := granted(t, printed(t, compiler.NewCommand(), "rbac", "--config", written(t, v, "compiler", "config.yaml"), arg(args, "--store"), arg(args, "--lease"), arg(args, "--webhook-secret"), arg(args, "--webhook-configuration"), arg(args, "--fleet-status"), arg(args, "--report-secret")), "hapsnap-compiler")
				compare(t, "compiler", said, granted(t, objects, accountOf(t, o)), v.name == "named", []string{
					v.name + "/configmaps:" + o.GetName() + ":get,list,watch", "/example.com/widgets::get,list,watch",
				})
			}
			if o, ok := v.component(t, "Deployment", "pusher"); ok {
				args := specOf(t, o).Containers[0].Args
				roles := printed(t, pusher.NewCommand(), "rbac", "--instances", written(t, v, "fleet", "fleet.yaml"), arg(args, "--store"), arg(args, "--state"), arg(args, "--status"), arg(args, "--lease"), arg(args, "--make-credentials"), arg(args, "--ui-compiler"), scopeOf(v.name),
					"--create="+map[bool]string{true: "true", false: "false"}[v.name == "delivered"],
					"--companions="+map[bool]string{true: "true", false: "false"}[v.name == "companions"], "--all-namespaces="+map[bool]string{true: "true", false: "false"}[slices.Contains(args, "--all-namespaces")])
				got := granted(t, objects, accountOf(t, o))
				if v.name != "everything" { // that variant has no limit
					comparePeople(t, roles, objects)
				}
				compare(t, "pusher", granted(t, roles, "hapsnap-pusher"), got, v.name == "named", nil)
			}
		})
	}
}

// scopeOf returns the scope flag for a variant whose pusher may not read all namespaces.
func scopeOf(variant string) string {
	return map[string]string{"namespaces": "--scope=namespaces=team1,team2,namespaces", "named": "--scope=namespaces=team1,team2,named"}[variant]
}

func compare(t *testing.T, program string, said, granted map[string]bool, byName bool, also []string) {
	t.Helper()
	for _, atom := range slices.Sorted(maps.Keys(said)) {
		secrets := strings.Contains(atom, "//secrets::") || strings.Contains(atom, "//configmaps::")
		if !granted[atom] && (!byName || !secrets) {
			t.Errorf("%s may not %s", program, atom)
		}
	}
	for _, atom := range slices.Sorted(maps.Keys(granted)) {
		if !said[atom] && (!byName || !strings.Contains(atom, "/secrets:") && !strings.Contains(atom, "/configmaps:")) && !slices.ContainsFunc(also, func(a string) bool { return permits(a, atom) }) {
			t.Errorf("%s need not %s", program, atom)
		}
	}
}

// permits reports whether a pattern such as NAMESPACE/RESOURCE:NAME:VERBS, perhaps with an API group, matches
// an atom.
func permits(pattern, atom string) bool {
	head, verbs, _ := cutLast(pattern, ":")
	atomHead, verb, _ := cutLast(atom, ":")
	return strings.ReplaceAll(head, "//", "/") == strings.ReplaceAll(atomHead, "//", "/") && slices.Contains(strings.Split(verbs, ","), verb)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// granted returns the permissions of an account, each as NAMESPACE/GROUP/RESOURCE:NAME:VERB.
func granted(t *testing.T, objects []unstructured.Unstructured, account string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, b := range objects {
		if b.GetKind() != "RoleBinding" && b.GetKind() != "ClusterRoleBinding" {
			continue
		}
		var binding rbacv1.ClusterRoleBinding
		convert(t, b, &binding)
		if !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Kind == "ServiceAccount" && s.Name == account }) {
			continue
		}
		found := false
		for _, r := range objects {
			if r.GetKind() == binding.RoleRef.Kind && r.GetName() == binding.RoleRef.Name && r.GetNamespace() == b.GetNamespace() {
				found = true
				var role rbacv1.ClusterRole
				convert(t, r, &role)
				maps.Copy(out, atoms(r.GetNamespace(), role.Rules))
			}
		}
		if !found {
			t.Errorf("%s %s/%s: there is no %s %s", b.GetKind(), b.GetNamespace(), b.GetName(), binding.RoleRef.Kind, binding.RoleRef.Name)
		}
	}
	return out
}

func atoms(namespace string, rules []rbacv1.PolicyRule) map[string]bool {
	out := map[string]bool{}
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						out[namespace+"/"+group+"/"+resource+":"+name+":"+verb] = true
					}
				}
			}
		}
	}
	return out
}

// comparePeople compares the roles for people. Neither the chart nor the program binds them.
func comparePeople(t *testing.T, printed, objects []unstructured.Unstructured) {
	t.Helper()
	rules := func(objects []unstructured.Unstructured, role string) map[string]bool {
		out := map[string]bool{}
		for _, o := range objects {
			if o.GetKind() == "Role" && strings.HasSuffix(o.GetName(), "-"+role) {
				var r rbacv1.Role
				convert(t, o, &r)
				maps.Copy(out, atoms(o.GetNamespace(), r.Rules))
			}
		}
		return out
	}
	for _, role := range []string{"viewer", "operator", "approver"} {
		if said, got := rules(printed, role), rules(objects, role); !maps.Equal(said, got) {
			t.Errorf("the %s may %v, want %v", role, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(said)))
		}
	}
}

// printed returns the roles that a program prints.
func printed(t *testing.T, program *cobra.Command, args ...string) []unstructured.Unstructured {
	t.Helper()
	var out, complaints bytes.Buffer
	program.SetOut(&out)
	program.SetErr(&complaints)
	program.SetArgs(slices.DeleteFunc(args, func(a string) bool { return a == "" }))
	if err := program.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &complaints)
	}
	return Objects(t, out.String())
}

// written writes a key of a component's ConfigMap to a file.
func written(t *testing.T, v *variant, component, key string) string {
	t.Helper()
	o, ok := v.component(t, "ConfigMap", component)
	if !ok {
		t.Fatalf("no ConfigMap of %s", component)
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", key)
	path := filepath.Join(t.TempDir(), key)
	// The files that the Fleet names come from Secrets.
	secrets := t.TempDir()
	for _, name := range []string{"password", "ca.crt"} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(secrets, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text = strings.ReplaceAll(text, "/etc/hapsnap/secrets/edge", secrets)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// arg returns the argument for a flag, as --flag=value.
func arg(args []string, flag string) string {
	for _, a := range args {
		if strings.HasPrefix(a, flag+"=") {
			return a
		}
	}
	return ""
}

func specOf(t *testing.T, o unstructured.Unstructured) corev1.PodSpec {
	t.Helper()
	if pod, ok := podOf(o); ok {
		o = pod
	}
	var pod corev1.Pod
	convert(t, o, &pod)
	return pod.Spec
}

func accountOf(t *testing.T, o unstructured.Unstructured) string {
	t.Helper()
	return specOf(t, o).ServiceAccountName
}

func convert(t *testing.T, o unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		t.Fatal(err)
	}
}

// Numbers are written as numbers.
func TestNumbersStayNumbers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(written(t, named(t, "ports"), "compiler", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"namespaceOptionBytes: 16777216\n", "maxconn: 1000000\n", "port: 5432\n"} {
		if !strings.Contains(string(text), want) {
			t.Error(gocmp.Diff(want, string(text)))
		}
	}
}

// The chart tells the compiler the version of HAProxy if it knows it: if every HAProxy is in the chart's own
// pods, and the image tags have it. Keywords of a newer version would stop an older HAProxy.
func TestLineOfHAProxy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ set, want string }{
		"default":                      {"", "3.2"},
		"another line":                 {"haproxyLine=3.0", "3.0"},
		"a release of the line":        {"haproxy.image.tag=3.2.22", "3.2"},
		"our image":                    {"haproxy.image.tag=1.0.0-haproxy3.2,compiler.image.tag=1.0.0-haproxy3.2", "3.2"},
		"another release":              {"haproxy.image.tag=3.0.9", ""},
		"not the line but its digits":  {"haproxy.image.tag=1.3.2", ""},
		"a tag that says nothing":      {"haproxy.image.tag=next", ""},
		"a compiler of another line":   {"compiler.image.tag=1.0.0-haproxy3.0", ""},
		"the configuration has a word": {"compiler.config.haproxyVersion=2.8", "2.8"},
		"instances that others made":   {"fleet.instances[0].name=a,fleet.instances[0].url=https://a.example", ""},
		"no fleet of the chart":        {"haproxy.enabled=false,pusher.enabled=false", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := Template(t, "helm", "edge", "--show-only", "templates/compiler/config.yaml", "--set", c.set)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if m := regexp.MustCompile(`haproxyVersion: "(.*)"`).FindStringSubmatch(text); m != nil {
				got = m[1]
			}
			if got != c.want {
				t.Errorf("haproxyVersion is %q, want %q", got, c.want)
			}
		})
	}
}

// The job that deletes old snapshots runs where the pusher may run, and reaches the store in the same way.
func TestGCRunsWhereThePusherMay(t *testing.T) {
	t.Parallel()
	text, err := Template(t, "helm", "edge", "--show-only", "templates/pusher/gc.yaml", "--set-json",
		`pusher={"nodeSelector": {"role": "edge"}, "tolerations": [{"key": "edge", "operator": "Exists"}], "priorityClassName": "edge", "podAnnotations": {"mesh": "off"}, "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	objects := Objects(t, text)
	i := slices.IndexFunc(objects, func(o unstructured.Unstructured) bool { return o.GetKind() == "CronJob" })
	if i < 0 {
		t.Fatal("no CronJob")
	}
	spec := specOf(t, objects[i])
	if spec.NodeSelector["role"] != "edge" || len(spec.Tolerations) != 1 || spec.PriorityClassName != "edge" || len(spec.TopologySpreadConstraints) != 0 {
		t.Errorf("the job runs at %v %v %s %v", spec.NodeSelector, spec.Tolerations, spec.PriorityClassName, spec.TopologySpreadConstraints)
	}
	if env := spec.Containers[0].Env; len(env) != 1 || env[0].Name != "HTTPS_PROXY" {
		t.Errorf("its environment is %v", env)
	}
	if !strings.Contains(text, "mesh: \"off\"") {
		t.Error("it lacks the annotations of the pusher's pods")
	}
}
