package config

func (c Config) checkErrorPages(f faults) {
	if c.ErrorPages != "" {
		f.add(checkShared(c.ErrorPages), "use the namespace and the name of a ConfigMap, such as edge/error-pages")
	}
}
