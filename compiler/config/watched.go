package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Watched says which objects of a kind are read from a cluster.
type Watched struct {
	// Watch says which ones: named are those that an Ingress, this configuration or
	// a template names, each asked for by its name; selected are those that
	// labelSelector selects; all are all of them, which needs the permission to
	// list every one.
	Watch Watch `json:"watch"`
	// LabelSelector selects objects by their labels, such as app=shop, where watch
	// is selected.
	LabelSelector string `json:"labelSelector"`
}

// Watch says which objects of a kind are read.
type Watch string

// Those that something names, those with a label, or all of them.
const (
	WatchNamed    Watch = "named"
	WatchSelected Watch = "selected"
	WatchAll      Watch = "all"
)

// Check finds what is wrong with the fields.
func (w Watched) Check(f Errors) {
	switch w.Watch {
	case WatchNamed, WatchSelected, WatchAll:
	default:
		f.At("watch").Add(fmt.Sprintf("%q is neither named, selected nor all", string(w.Watch)), "use named, unless what is needed is not named by anything")
		return
	}
	switch {
	case w.Watch == WatchSelected && w.LabelSelector == "":
		f.At("watch").Add("is selected, and there is no labelSelector", "add one, such as app=shop, or use named")
	case w.Watch != WatchSelected && w.LabelSelector != "":
		f.At("labelSelector").Add(fmt.Sprintf("selects nothing where watch is %s", w.Watch), "use watch: selected")
	}
	CheckLabelSelector(f.At("labelSelector"), w.LabelSelector)
}

// CheckLabelSelector checks a selector of labels as kubectl takes it.
func CheckLabelSelector(f Errors, text string) {
	if _, err := labels.Parse(text); err != nil {
		reason, _, _ := strings.Cut(err.Error(), " (e.g.") // what follows is a regular expression
		f.Add(fmt.Sprintf("%q is not a label selector: %s", text, reason), "write it as kubectl takes it, such as app=shop or tier in (web, api)")
	}
}

func checkFieldSelector(text string) string {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return fmt.Sprintf("%q is not a field selector: %s", text, err)
	}
	for _, r := range selector.Requirements() {
		if !fieldForm.MatchString(r.Field) {
			return fmt.Sprintf("%q is not a field selector: %q is not the path of a field", text, r.Field)
		}
	}
	return ""
}

// CheckNamespaces checks a list of namespaces, of which none means all.
func CheckNamespaces(f Errors, names []string) {
	for i, name := range names {
		if len(validation.IsDNS1123Label(name)) > 0 {
			f.Element(i).Add(fmt.Sprintf("%q is not a namespace", name), "use names of namespaces; an empty list is all of them")
		}
	}
}
