package options

// Different returns the names of the options that the annotations of an object
// hold and that do not hold by those of others, of which the first one that has
// an option counts. Left out are names that are not known, those of [Canary], and
// what asks nothing of the requests of an Ingress.
func Different(annotations map[string]string, others ...map[string]string) []string {
	var out []string
	for _, name := range ours(annotations) {
		o, known := registry[name]
		if !known || o.Name == canaryOption || o.Needs == canaryOption || (o.Matches && o.On == OnService) {
			continue
		}
		if value, holds := valueIn(others, name); !holds || value != annotations[Prefix+name] {
			out = append(out, name)
		}
	}
	return out
}

func valueIn(objects []map[string]string, name string) (string, bool) {
	for _, annotations := range objects {
		if value, ok := annotations[Prefix+name]; ok {
			return value, true
		}
	}
	return "", false
}
