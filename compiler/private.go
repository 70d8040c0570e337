package compiler

import (
	"bytes"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

// privateOf returns what must not be published of the Secrets of a compile: of all
// that were read, in namespaces too that nothing else is compiled from.
func privateOf(in Input) *leak.Index {
	p := leak.Public{Knows: publicIn(in.Objects)}
	for _, text := range in.Config.PublicSecrets {
		if name, err := snapshots.ParseSecretName(text); err == nil { // as the configuration was checked
			p.Secrets = append(p.Secrets, name)
		}
	}
	secrets := make([]*corev1.Secret, len(in.Objects.Secrets))
	for i, s := range in.Objects.Secrets {
		secrets[i] = s.Value
	}
	return in.Read.Index(secrets, p)
}

// publicIn reports of a value whether it is a name of an object or of a host, or
// words of the shipped templates.
func publicIn(in inputs.Inputs) func(value []byte) bool {
	var names map[string]bool
	return func(value []byte) bool {
		if names == nil {
			names = namesIn(in)
		}
		return names[string(value)] || isShipped(value)
	}
}

// namesIn returns the names of objects, of their namespaces and of hosts.
func namesIn(in inputs.Inputs) map[string]bool {
	out := map[string]bool{}
	for _, i := range in.Provenance() {
		out[i.Namespace], out[i.Name] = true, true
	}
	for _, o := range in.Ingresses {
		for _, rule := range o.Value.Spec.Rules {
			out[rule.Host] = true
		}
		for _, tls := range o.Value.Spec.TLS {
			for _, host := range tls.Hosts {
				out[host] = true
			}
		}
	}
	return out
}

// isShipped reports whether a value is part of a shipped template.
func isShipped(value []byte) bool {
	found := false
	_ = fs.WalkDir(templates.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || found {
			return err
		}
		text, err := templates.FS.ReadFile(path)
		found = bytes.Contains(text, value)
		return err
	})
	return found
}

// redacted returns diagnostics without private material, sorted. They get into the
// manifest, into logs and into Events.
func (c *compilation) redacted(ds []diag.Diagnostic) []diag.Diagnostic {
	for i, d := range ds {
		ds[i].Message, ds[i].Hint = c.private.Redact(d.Message, d.Object.Namespace), c.private.Redact(d.Hint, d.Object.Namespace)
	}
	return diag.Sort(ds)
}

// checkDraft refuses a draft with private material in what was added to the
// artifact, and hides what is in the words of its manifest. Names stay: everybody
// knows those. So does the subject, which has names of objects, files and sections.
func (c *compilation) checkDraft(r *Result) error {
	var faults []render.Fault
	for _, f := range r.Draft.Files {
		if _, ok := r.Artifact.Origins[f.Path]; ok {
			continue // it was checked before
		}
		for _, found := range c.private.Find(f.Content) {
			if !found.Plain {
				faults = append(faults, render.Fault{Message: fmt.Sprintf("%s would hold %s, and snapshots are kept where many can read them", f.Path, found.What)})
			}
		}
	}
	if len(faults) > 0 {
		c.reportTemplates(faults)
		r.Diagnostics = c.redacted(append(r.Diagnostics, c.reported...))
		r.Draft = snapshots.Draft{}
		return ErrTemplates // the configuration has it recorded
	}
	p := &r.Draft.Provenance
	p.Trigger, p.Author = c.private.Redact(p.Trigger, ""), c.private.Redact(p.Author, "")
	return nil
}
