"""One self-contained web page that computes a network, or a JavaScript module.

module     the network as JavaScript: functions.js has what it may need
page       the page around it: page.html with image.html and image.js, or with json.html and json.js
"""
