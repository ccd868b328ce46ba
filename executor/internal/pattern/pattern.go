// Package pattern matches the names of images and other objects against the patterns of a
// configuration.
package pattern

import (
	"slices"
	"strings"
)

// Image reports whether one of some patterns matches an image, by its name or that with its registry.
func Image(patterns []string, image string) bool {
	return Any(patterns, image) || Any(patterns, FullName(image))
}

// Any reports whether one of some patterns matches a text.
func Any(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, text) })
}

// FullName returns the name of an image with its registry, as Docker completes it.
func FullName(image string) string {
	first, _, parted := strings.Cut(image, "/")
	switch {
	case !parted:
		return "docker.io/library/" + image
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		return "docker.io/" + image
	}
	return image
}

// matches reports whether a text matches a pattern, in which * matches any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
