package testscripts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/rogpeppe/go-internal/testscript"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// fluxPhases are the names of Argo CD's phases in Flux.
var fluxPhases = map[string]string{"Healthy": "current", "Suspended": "current", "Progressing": "inProgress", "Degraded": "failed"}

// checkHealth runs the health checks of examples/argo-cd and examples/flux on a ConfigMap.
func checkHealth(w *world, _ *testscript.TestScript, args []string) error {
	namespace, name, ok := strings.Cut(strings.Join(args[min(1, len(args)):], " "), "/")
	if !ok || fluxPhases[args[0]] == "" || w.cluster == nil {
		return errUsage
	}
	var o corev1.ConfigMap
	if err := w.cluster.Client().Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &o); err != nil {
		return err
	}
	checks, err := readHealthChecks()
	if err != nil {
		return err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o)
	if err != nil {
		return err
	}
	return checks.want(object, args[0])
}

// healthChecks are the checks of examples/argo-cd and examples/flux, which the pages about these show.
type healthChecks struct {
	argo string            // in Lua
	flux map[string]string // in CEL, by purpose
}

func readHealthChecks() (healthChecks, error) {
	var files []byte
	for _, name := range []string{"argo-cd/argocd-cm.yaml", "flux/snapshots.yaml"} {
		file, err := os.ReadFile("../examples/" + name)
		if err != nil {
			return healthChecks{}, err
		}
		files = append(append(files, file...), "---\n"...)
	}
	var argo struct{ Data map[string]string }
	var flux struct {
		Spec struct{ HealthCheckExprs []map[string]string }
	}
	for document := range strings.SplitSeq(string(files), "---\n") {
		if err := errors.Join(readIf(document, "resource.customizations", &argo), readIf(document, "healthCheckExprs", &flux)); err != nil {
			return healthChecks{}, err
		}
	}
	if argo.Data["resource.customizations.health.ConfigMap"] == "" || len(flux.Spec.HealthCheckExprs) != 1 {
		return healthChecks{}, errors.New("examples/argo-cd or examples/flux has no health checks")
	}
	return healthChecks{argo.Data["resource.customizations.health.ConfigMap"], flux.Spec.HealthCheckExprs[0]}, nil
}

func readIf(document, mark string, into any) error {
	if !strings.Contains(document, mark) {
		return nil
	}
	return yaml.Unmarshal([]byte(document), into)
}

// want evaluates the checks like the two tools.
func (c healthChecks) want(object map[string]any, phase string) error {
	status, message, err := runLua(c.argo, object)
	if err != nil {
		return err
	}
	if status != phase {
		return fmt.Errorf("argo CD finds it %s: %s", status, message)
	}
	for name, expression := range c.flux {
		if name == "apiVersion" || name == "kind" {
			continue
		}
		holds, err := evaluateCEL(expression, object)
		if err != nil || holds != (name == fluxPhases[phase]) {
			return fmt.Errorf("flux finds %s %t: %w", name, holds, err)
		}
	}
	return nil
}

// runLua runs a script that returns a status and a message for obj. Like Argo CD, it opens only the basic
// libraries.
func runLua(script string, object map[string]any) (status, message string, err error) {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString} {
		l.Push(l.NewFunction(open))
		l.Call(0, 0)
	}
	l.SetGlobal("obj", luaValue(l, object))
	if err := l.DoString(script); err != nil {
		return "", "", err
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the script returned %s", l.Get(-1))
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String(), nil
}

func luaValue(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, below := range v {
			table.RawSetString(key, luaValue(l, below))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	}
	return lua.LNil // the script uses nothing else
}

// evaluateCEL evaluates an expression whose variables are the fields of the object.
func evaluateCEL(expression string, object map[string]any) (bool, error) {
	env, err := cel.NewEnv()
	if err != nil {
		return false, err
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return false, issues.Err()
	}
	program, err := env.Program(parsed)
	if err != nil {
		return false, err
	}
	out, _, err := program.Eval(object)
	if err != nil {
		return false, err
	}
	holds, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("%s is %v", expression, out)
	}
	return holds, nil
}

// The checks in the documentation work for every possible status.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	checks, err := readHealthChecks()
	if err != nil {
		t.Fatal(err)
	}
	const older, newer = "r000009-0123456789", "r000010-0000000000"
	for name, c := range map[string]struct {
		data map[string]any
		want string
	}{
		"nobody has reported": {map[string]any{"delivered": newer}, "Progressing"},
		"not seen yet":        {map[string]any{"delivered": newer, "newest": older, "phase": "Healthy"}, "Progressing"},
		"nothing seen yet":    {map[string]any{"delivered": newer, "newest": "", "phase": "Degraded"}, "Progressing"},
		"git went back":       {map[string]any{"delivered": older, "newest": newer, "phase": "Healthy"}, "Healthy"},
		"healthy":             {map[string]any{"delivered": newer, "newest": newer, "phase": "Healthy"}, "Healthy"},
		"progressing":         {map[string]any{"delivered": newer, "newest": newer, "phase": "Progressing"}, "Progressing"},
		"suspended":           {map[string]any{"delivered": newer, "newest": newer, "phase": "Suspended"}, "Suspended"},
		"degraded":            {map[string]any{"delivered": newer, "newest": newer, "phase": "Degraded"}, "Degraded"},
	} {
		object := map[string]any{"metadata": map[string]any{"labels": map[string]any{"hapsnap.dev/part": "status"}}, "data": c.data}
		if err := checks.want(object, c.want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, metadata := range []map[string]any{{}, {"labels": map[string]any{"hapsnap.dev/part": "chunk"}}} {
		if status, _, err := runLua(checks.argo, map[string]any{"metadata": metadata}); err != nil || status != "Healthy" {
			t.Errorf("another ConfigMap is %s, %v", status, err)
		}
	}
}
