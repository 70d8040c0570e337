package controller

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/internal/fair"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Report is what is known of a compiler and of its store, for people and for
// programs.
type Report struct {
	Head HeadReport `json:"head"`
	// Found are the faults of the inputs: what they are about was left out, or a
	// part of it. Those of templates and of the configuration, which name no object,
	// leave out nothing; nothing is compiled then.
	Found []Finding `json:"found"`
	// Withheld is how many faults the client may not see, or how many had no room.
	Withheld int `json:"withheld,omitempty"`
	// Compiler is nil if no compiler was asked.
	Compiler *CompilerReport `json:"compiler,omitempty"`
}

// ForAnybody returns the report without what names objects, and with the number of faults.
func (r Report) ForAnybody() Report {
	out := Report{Head: r.Head, Found: []Finding{}, Withheld: len(r.Found)}
	out.Head.Subject = ""
	if c := r.Compiler; c != nil {
		out.Compiler = &CompilerReport{Ready: c.Ready, Leads: c.Leads, LastSuccess: c.LastSuccess, Warnings: c.Warnings, Conditions: slices.Clone(c.Conditions)}
		for i := range out.Compiler.Conditions {
			out.Compiler.Conditions[i].Message = ""
		}
		if !c.Ready {
			out.Compiler.Reason = "clients on the compiler's host are told why"
		}
	}
	return out
}

// Within returns the report with as many findings as fit into a number of bytes of JSON, and the number of the
// others, which are of the namespaces with most findings. The report is without what the status of objects of the
// Gateway API is to say, which those have.
func (r Report) Within(most int) (Report, error) {
	out := r
	out.Found = []Finding{}
	if r.Compiler != nil {
		of := *r.Compiler
		of.Gateway, out.Compiler = nil, &of
	}
	rest, err := json.Marshal(out)
	if err != nil {
		return Report{}, err
	}
	most -= len(rest)
	sizes, all := make([]int, len(r.Found)), map[string]int{}
	for i, f := range r.Found {
		text, err := json.Marshal(f)
		if err != nil {
			return Report{}, err
		}
		sizes[i] = len(text) + len(",")
		all[f.Namespace] += sizes[i]
	}
	share, used := fair.Allowance(slices.Collect(maps.Values(all)), max(0, most)), map[string]int{}
	for i, f := range r.Found {
		if used[f.Namespace] += sizes[i]; used[f.Namespace] > share {
			out.Withheld++
			continue
		}
		out.Found = append(out.Found, f)
	}
	return out, nil
}

// HeadReport is the newest snapshot of a store, as far as the compiler knows.
type HeadReport struct {
	Snapshot     snapshots.ID `json:"snapshot,omitzero"`
	Time         time.Time    `json:"time,omitzero"` // of its validation
	Subject      string       `json:"subject,omitempty"`
	Backends     int          `json:"backends"` // that have servers
	Hosts        int          `json:"hosts"`
	Certificates int          `json:"certificates"` // of Secrets
}

// CompilerReport is what a compiler that runs says of itself.
type CompilerReport struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it is not
	// Leads is set in the one compiler, of those of a store, that publishes.
	Leads bool `json:"leads"`
	// Leader says who publishes, if it is not this one, as far as that is known.
	Leader string `json:"leader,omitempty"`
	// LastSuccess is when the store was last known to hold what the objects say.
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// CompileError and PublishError are those of the last try.
	CompileError string `json:"compileError,omitempty"`
	PublishError string `json:"publishError,omitempty"`
	// Unanswered is what the store has not answered for ten seconds or more, or nil.
	Unanswered *AskReport `json:"unanswered,omitempty"`
	// Held is a draft that waits for approval, or nil.
	Held *HeldReport `json:"held,omitempty"`
	// Rival is another compiler that publishes to the same store, or nil.
	Rival *RivalReport `json:"rival,omitempty"`
	// Refused is set while the written configuration is not the one in use.
	Refused *ConfigReport `json:"refused,omitempty"`
	// RefusedTemplates is set while the written templates are not those in use.
	RefusedTemplates *ConfigReport `json:"refusedTemplates,omitempty"`
	// Interrupted are the watches of the cluster that get no updates.
	Interrupted []WatchReport `json:"interrupted,omitempty"`
	Warnings    int           `json:"warnings"`
	// Webhook says why the certificate of the admission webhook, which the compiler that leads makes
	// and renews, cannot be made, renewed or used; nil if it can.
	Webhook *CredentialsReport `json:"webhook,omitempty"`
	// Conditions say the same in the form of kstatus: Ready, Progressing and Degraded.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Ingresses says how many are compiled and of which classes the others are, once
	// something was compiled.
	Ingresses *ingress.Census `json:"ingresses,omitempty"`
	// Gateway is what the status of objects of the Gateway API should say after this compile. It is not written into a
	// cluster.
	Gateway []gateway.ObjectStatus `json:"gateway,omitempty"`
}

// AskReport is what the store was asked to do. Nothing is compiled or published meanwhile.
type AskReport struct {
	To    string    `json:"to"` // such as "publish a snapshot"
	Since time.Time `json:"since"`
}

// CredentialsReport is what is wrong with credentials that the compiler makes or uses. Since is zero for those that it
// did not make.
type CredentialsReport struct {
	Error string    `json:"error"`
	Since time.Time `json:"since,omitzero"`
}

// WatchReport is a list of objects that is held as it was known.
type WatchReport struct {
	Objects string    `json:"objects"`
	Error   string    `json:"error"`
	Since   time.Time `json:"since"`
}

// ConfigReport says why a configuration is not used: what is wrong with it, or that
// it cannot be read.
type ConfigReport struct {
	Error string    `json:"error,omitempty"`
	Found []Finding `json:"found,omitempty"`
}

// HeldReport is a draft that waits for approval.
type HeldReport struct {
	Lost     string           `json:"lost"`
	Since    snapshots.ID     `json:"since"` // what it is compared with
	Digest   snapshots.Digest `json:"digest"`
	Approval string           `json:"approval"` // how to approve it
}

// Finding is one fault of the inputs. Its position is as in [diag.Position].
type Finding struct {
	Kind      string    `json:"kind,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	File      string    `json:"file,omitempty"`
	Line      int       `json:"line,omitempty"`
	Column    int       `json:"column,omitempty"`
	Field     string    `json:"field,omitempty"`
	Reason    string    `json:"reason"`
	Hint      string    `json:"hint,omitempty"`
	Since     time.Time `json:"since,omitzero"` // as far as this compiler knows
}

// Diagnostic returns the finding as a diagnostic.
func (f Finding) Diagnostic() diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Error, Object: diag.Object{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name},
		Position: diag.Position{File: f.File, Line: f.Line, Column: f.Column, Field: f.Field},
		Message:  f.Reason, Hint: f.Hint,
	}
}

// StoredReport is what the newest snapshot of a store says by itself; the zero
// Snapshot is that of an empty store. It lists what was left out when it was
// published.
func StoredReport(head snapshots.Snapshot) Report {
	r := Report{Head: headReport(head), Found: []Finding{}}
	for _, q := range head.Manifest.Spec.Quarantined {
		r.Found = append(r.Found, Finding{Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, Reason: q.Reason})
	}
	return r
}

// CompiledReport is what a compile says by itself, that is not published. err is that of the compile.
func CompiledReport(r compiler.Result, err error) Report {
	ingresses := r.Ingresses
	return Report{Found: findings(nil, r.Diagnostics, time.Time{}), Compiler: &CompilerReport{
		Ready: err == nil, Reason: text(err), CompileError: text(err), Leads: true, Warnings: warnings(r.Diagnostics),
		Ingresses: &ingresses, Gateway: r.Verdicts.Statuses(),
	}}
}

func headReport(s snapshots.Snapshot) HeadReport {
	size := sizeOf(s.Files)
	h := HeadReport{
		Snapshot: s.ID(), Time: s.Manifest.Provenance.Time, Subject: s.Manifest.Spec.Subject,
		Backends: size.backends, Hosts: size.hosts,
	}
	for _, c := range s.Manifest.Spec.Certificates {
		if c.File != render.Fallback {
			h.Certificates++
		}
	}
	return h
}

// findings returns the errors among diagnostics. Those that were there before are
// as old as they were then, also if they stand at another place by now.
func findings(before []Finding, ds []diag.Diagnostic, now time.Time) []Finding {
	type fault struct {
		object diag.Object
		reason string
	}
	since := map[fault]time.Time{}
	for _, f := range before {
		since[fault{f.Diagnostic().Object, f.Reason}] = f.Since
	}
	out := []Finding{}
	for _, d := range ds {
		if d.Severity != diag.Error {
			continue
		}
		at, known := since[fault{d.Object, d.Message}]
		if !known {
			at = now
		}
		out = append(out, Finding{
			Kind: d.Object.Kind, Namespace: d.Object.Namespace, Name: d.Object.Name,
			File: d.Position.File, Line: d.Position.Line, Column: d.Position.Column, Field: d.Position.Field,
			Reason: d.Message, Hint: d.Hint, Since: at,
		})
	}
	return out
}

// warnings counts those among diagnostics.
func warnings(ds []diag.Diagnostic) int {
	n := 0
	for _, d := range ds {
		if d.Severity == diag.Warning {
			n++
		}
	}
	return n
}
