"""Between the wire and the core: conversion, channels, error mapping. Wire types stop here."""
