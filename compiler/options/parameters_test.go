package options_test

import (
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
)

func TestInherit(t *testing.T) {
	own, _ := options.Read(options.OnIngress, map[string]string{options.Prefix + "retries": "1"})
	class, problems := options.Read(options.OnClass, options.Parameters(map[string]string{
		"retries": "2", options.Prefix + "max-queue": "3", "rate-limit-period": "1m", "backend-verify": "system",
	}))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	values := own.Inherit(class)
	if values.Inherits("retries") || !values.Inherits("max-queue") || !values.Has("retries") {
		t.Error("not inherited as it should be")
	}
	settings, found, closed := options.Resolve(values)
	if got := settings.Upstream.RetryCount(); got != 1 {
		t.Errorf("retries: %d", got)
	}
	// A default without an effect on one Ingress may have one on another.
	if len(found[0]) != 1 || found[0][0].Severity != diag.Error || !found[0][0].Inherited || !closed {
		t.Errorf("closed %v, found %+v", closed, found)
	}
	if want := "parameter backend-verify needs TLS to the servers; the routes that it protects answer 503"; found[0][0].Message != want {
		t.Errorf("said %q, want %q", found[0][0].Message, want)
	}
}

// Every option can be a default of a class, or says why not.
func TestClassRefusesWhatIsOwn(t *testing.T) {
	for _, o := range options.All() {
		values, problems := options.Read(options.OnClass, options.Parameters(map[string]string{o.Name: o.Example}))
		possible := o.On&options.OnIngress != 0 && !o.Own
		if possible != values.Has(o.Name) || possible != (len(problems) == 0) || (!possible && values.Closed != o.Closes) {
			t.Errorf("%s: has it %v, closed %v, problems %v", o.Name, values.Has(o.Name), values.Closed, problems)
		}
	}
}
